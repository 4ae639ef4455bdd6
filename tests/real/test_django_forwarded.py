"""Django behind a proxy: which spellings of a field deceive it on ASGI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Serve

DJANGO = """\
    import django
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import JsonResponse
    from django.urls import re_path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="-",
        SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    )
    django.setup()

    def page(request):
        found = {name: value for name, value in request.META.items() if name.startswith("HTTP_")}
        return JsonResponse([request.is_secure(), request.META["REMOTE_ADDR"], found], safe=False)

    urlpatterns = [re_path("", page)]
    app = get_asgi_application()
"""


def ask(peer: Peer, *lines: str) -> tuple[bool, str, dict[str, str]]:
    """Return whether Django takes the request for one over https, its client, and its fields."""
    fields = "".join(f"{line}\r\n" for line in lines)
    peer.send(f"GET / HTTP/1.1\r\nHost: app.example\r\n{fields}\r\n".encode("latin-1"))
    response = peer.read_response()
    assert response.status == 200, response
    is_secure, address, found = json.loads(response.body)
    return is_secure, address, found


@pytest.mark.parametrize("trusted", ["192.0.2.0/24", "127.0.0.1"])
def test_underscores_do_not_deceive_django(serve: Serve, write_app: Callable[[str], str], trusted: str) -> None:
    """Django makes HTTP_X_FORWARDED_PROTO of X_Forwarded_Proto. A proxy may pass on what its client calls so."""
    server = serve(f"{write_app(DJANGO)}:app", "--trusted-proxies", trusted)
    strange = ["X_Forwarded_Proto: https", "X-Forwarded_Proto: https", "x_forwarded_proto: https", "X_Real_IP: 6.6.6.6"]
    with Peer.connect(server.host, server.port) as peer:
        for _ in range(3):
            assert ask(peer, *strange) == (False, "127.0.0.1", {"HTTP_HOST": "app.example"})
            assert not ask(peer, "X_Forwarded_Proto: https", "X-Forwarded-Proto: http")[0]
            found = ask(peer, "X_Remote_User: admin", "X-Remote-User: guest")[2]
            assert found["HTTP_X_REMOTE_USER"] == "guest"
        secure = ask(peer, "X-Forwarded-Proto: https")[0]
        assert secure is (trusted == "127.0.0.1"), "the field itself is believed, of a proxy alone"
