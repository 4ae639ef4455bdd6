"""Two applications: Django alone, and Django behind WhiteNoise as a site without a web server in front has it."""

import os
from pathlib import Path

import django.contrib.admin
from django.core.wsgi import get_wsgi_application
from whitenoise import WhiteNoise

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

application = get_wsgi_application()
whitened = WhiteNoise(application, root=Path(django.contrib.admin.__file__).parent / "static", prefix="noise/")
