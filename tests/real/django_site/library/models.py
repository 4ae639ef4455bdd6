from django.db import models


class Book(models.Model):
    title = models.CharField(max_length=200)
    scan = models.FileField(upload_to="scans", blank=True)

    def __str__(self) -> str:
        return self.title
