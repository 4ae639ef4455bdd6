"""Views in every way that Django has of answering: whole, streamed, from a file, and not at all."""

import hashlib
from collections.abc import Iterator

from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.views.decorators.csrf import csrf_exempt

from library.models import Book


def export(request: HttpRequest) -> StreamingHttpResponse:
    """``lines`` numbered lines, streamed one by one."""
    lines = int(request.GET["lines"])
    return StreamingHttpResponse((f"line {number}\n" for number in range(lines)), content_type="text/plain")


def scan(request: HttpRequest, number: int) -> FileResponse:
    return FileResponse(Book.objects.get(pk=number).scan.open("rb"), as_attachment=True, filename="scan.bin")


@csrf_exempt
def echo(request: HttpRequest) -> JsonResponse:
    """Answers with the request, as Django read it."""
    return JsonResponse(
        {
            "method": request.method,
            "length": len(request.body),
            "sha256": hashlib.sha256(request.body).hexdigest(),
            "query": request.GET.dict(),
            "path": request.path,
            "headers": dict(request.headers),
        }
    )


def broken(request: HttpRequest) -> HttpResponse:
    raise LookupError("the shelf is empty")


def broken_stream(request: HttpRequest) -> StreamingHttpResponse:
    def lines() -> Iterator[str]:
        yield "before\n"
        raise LookupError("the shelf fell")

    return StreamingHttpResponse(lines(), content_type="text/plain")
