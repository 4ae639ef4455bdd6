"""A Django app: with ``"kirsch.django"`` in INSTALLED_APPS, ``manage.py runserver`` serves with Kirsch.

It has to come before ``django.contrib.staticfiles``, whose command of the same name it extends.
"""
