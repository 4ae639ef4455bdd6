from django.contrib import admin
from django.contrib.staticfiles.views import serve
from django.urls import path, re_path

from library import views

urlpatterns = [
    path("admin/", admin.site.urls),
    # `insecure` is Django's word for serving static files itself outside debugging; here that is what is tested.
    re_path(r"^static/(?P<path>.*)$", serve, {"insecure": True}),
    path("export/", views.export),
    path("book/<int:number>/scan/", views.scan),
    path("echo/", views.echo),
    path("broken/", views.broken),
    path("broken-stream/", views.broken_stream),
]
