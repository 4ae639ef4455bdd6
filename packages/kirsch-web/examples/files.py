"""Upload a file, and get it back: multipart forms, temporary files, conditions and ranges.

    kirsch files:app
    curl -F file=@picture.png http://127.0.0.1:8000/

FILES_DIRECTORY is where they go (default: files, here).
"""

import os
import secrets

import kirsch_web as web

DIRECTORY = os.path.abspath(os.environ.get("FILES_DIRECTORY", "files"))
os.makedirs(DIRECTORY, exist_ok=True)

PAGE = """<!DOCTYPE html><title>Files</title>
<form method="post" enctype="multipart/form-data"><input type="file" name="file"><button>Send</button></form>"""


class Root:
    # GET /stored/NAME
    stored = web.StaticFiles(DIRECTORY)

    def index(self) -> str:
        return PAGE

    @web.post(name="index", status=201, body__upload_limit="10MiB")
    def save(self, file: web.Upload) -> dict[str, object]:
        # The name that the client gives is never a path: a name of our own is.
        name = secrets.token_hex(8)
        file.save(os.path.join(DIRECTORY, name))
        return {"name": file.filename, "bytes": file.size, "url": f"/stored/{name}"}


app = web.App(Root(), tools=[web.csrf()])
