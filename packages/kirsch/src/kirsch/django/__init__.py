"""A Django app: with ``"kirsch.django"`` in INSTALLED_APPS, ``manage.py runserver`` serves with Kirsch.

It must come before ``django.contrib.staticfiles``, whose command ``runserver`` it extends.
"""
