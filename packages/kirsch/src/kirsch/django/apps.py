"""The configuration of the Django app, which Django finds automatically, and a check of its position."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.core.management import get_commands


class KirschConfig(AppConfig):
    """The configuration of the app ``kirsch.django``."""

    name = "kirsch.django"
    label = "kirsch_django"
    verbose_name = "Kirsch"

    def ready(self) -> None:
        """Register the check of INSTALLED_APPS."""
        checks.register(check_order)


def check_order(**_: Any) -> list[checks.CheckMessage]:
    """Warn if another app's ``runserver`` hides the one of Kirsch."""
    owner = get_commands()["runserver"]
    if owner == KirschConfig.name:
        return []
    return [
        checks.Warning(
            f"{owner} comes before kirsch.django in INSTALLED_APPS, so `manage.py runserver` is not Kirsch's.",
            hint=f'Put "kirsch.django" before {owner!r}.',
            id="kirsch.W001",
        )
    ]
