"""Groups of WebSockets and other readers that receive the same messages: ``kirsch.Group``.

The names are imported at their first use, because every worker imports ``connector``, and few use a group.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch.groups.frames import Message
    from kirsch.groups.group import Group, Member
    from kirsch.groups.subscription import Subscription

__all__ = ["Group", "Member", "Message", "Subscription"]

_HOMES = {"Group": "group", "Member": "group", "Message": "frames", "Subscription": "subscription"}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kirsch.groups' has no attribute {name!r}")
    value: object = getattr(__import__(f"kirsch.groups.{home}", fromlist=[name]), name)
    globals()[name] = value
    return value
