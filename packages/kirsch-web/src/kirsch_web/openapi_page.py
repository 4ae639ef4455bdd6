"""An OpenAPI document as an HTML page, with forms that send requests. The page loads nothing from other sites.

The page is readable without its script, which only sends the forms. The Content-Security-Policy allows no other script.
"""

from __future__ import annotations

import json
from typing import Any

from kirsch_web.pages import escape

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
STYLE = """\
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre,textarea{font-family:ui-monospace,monospace;font-size:.9rem}
details{border:1px solid #8886;border-radius:.3rem;margin:.5rem 0;padding:.3rem .8rem}
summary{cursor:pointer;overflow-wrap:anywhere}
.method{display:inline-block;min-width:4.5rem;font-weight:700}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8883}
label{display:block;margin:.4rem 0}
input,textarea{width:100%;box-sizing:border-box}
textarea{min-height:6rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#8881;padding:.5rem}
"""
SCRIPT = """\
for (const form of document.forms) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const output = form.querySelector("output"), query = new URLSearchParams(), headers = {};
    let path = form.dataset.path;
    for (const input of form.querySelectorAll("input")) {
      const value = input.value, name = input.name;
      if (input.dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
      else if (value && input.dataset.in === "query") query.append(name, value);
      else if (value && input.dataset.in === "header") headers[name] = value;
    }
    const area = form.querySelector("textarea"), options = {method: form.dataset.method, headers};
    if (area && area.value) {
      options.body = area.value;
      headers["Content-Type"] = area.dataset.type;
    }
    output.textContent = "…";
    try {
      const url = form.dataset.base + path + (query.size ? `?${query}` : "");
      const response = await fetch(url, options);
      const fields = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\\n");
      output.textContent = `${response.status} ${response.statusText}\\n${fields}\\n\\n${await response.text()}`;
    } catch (error) {
      output.textContent = String(error);
    }
  });
}
"""


def page(document: dict[str, Any], base: str, files: str) -> str:
    """Return the HTML page of an OpenAPI document.

    Args:
        document: the OpenAPI document.
        base: the path at which the application is mounted.
        files: the path below which the style sheet and the script are.
    """
    title = escape(document["info"]["title"])
    parts = [
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{title}</title>",
        '<meta name=viewport content="width=device-width">',
        f'<link rel=stylesheet href="{escape(files)}/style">',
        f"<h1>{title}</h1><p>Version {escape(document['info']['version'])}, ",
        f'<a href="{escape(files)}">the OpenAPI document</a></p>',
    ]
    for path, operations in document["paths"].items():
        parts += [_operation(path, method, each, base) for method, each in operations.items()]
    schemas = document["components"]["schemas"]
    parts.append("<h2>Schemas</h2>")
    parts += [
        f'<details id="{_anchor(name)}"><summary><code>{escape(name)}</code></summary>{_code(schema)}</details>'
        for name, schema in schemas.items()
    ]
    parts.append(f'<script src="{escape(files)}/script"></script>\n')
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return escape(f"schema-{name}")


def _code(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"


def _operation(path: str, method: str, operation: dict[str, Any], base: str) -> str:
    parameters = operation.get("parameters", [])
    content = operation.get("requestBody", {}).get("content", {})
    parts = [
        f'<details id="{escape(operation["operationId"])}"><summary><span class=method>{escape(method.upper())}</span>',
        f"<code>{escape(base + path)}</code> {escape(operation.get('summary', ''))}</summary>",
    ]
    if "description" in operation:
        parts.append(f"<p>{escape(operation['description'])}</p>")
    if parameters:
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_words(each['schema'])}"
            f"<td>{'needed' if each['required'] else ''}"
            for each in parameters
        )
        parts.append(f"<table><tr><th>Parameter<th>in<th>type<th>{rows}</table>")
    for name, each in content.items():
        parts.append(f"<p>Body, <code>{escape(name)}</code>: {_words(each['schema'])}</p>")
    for status, response in operation["responses"].items():
        given = [_words(each["schema"]) for each in response.get("content", {}).values()]
        parts.append(f"<p>{escape(status)}: {', '.join(given) or escape(response['description'])}</p>")
    return "\n".join([*parts, _form(path, method, parameters, content, base), "</details>"])


def _form(path: str, method: str, parameters: list[dict[str, Any]], content: dict[str, Any], base: str) -> str:
    """Return the form of an operation. It is hidden until the script runs, because only the script can send it."""
    inputs = [
        f'<label>{escape(each["name"])}<input name="{escape(each["name"])}" data-in={each["in"]}'
        f"{' required' if each['required'] else ''}></label>"
        for each in parameters
        if each["in"] != "cookie"
    ]
    kind = next((name for name in content if name != "multipart/form-data"), "")
    if kind:
        inputs.append(f'<label>Body<textarea data-type="{escape(kind)}"></textarea></label>')
    elif content:
        return ""  # the script cannot send multipart forms
    return (
        f'<form hidden data-method="{escape(method.upper())}" data-path="{escape(path)}" data-base="{escape(base)}">'
        f"{''.join(inputs)}<button>Send</button><pre><output></output></pre></form>"
    )


def _words(schema: dict[str, Any]) -> str:
    """Return a short description of a schema as HTML. The name of a component is a link to its schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_anchor(name)}"><code>{escape(name)}</code></a>'
    if "anyOf" in schema:
        return " or ".join(_words(each) for each in schema["anyOf"])
    if "enum" in schema:
        return escape(", ".join(json.dumps(each, ensure_ascii=False, default=str) for each in schema["enum"]))
    if schema.get("type") == "array" and "items" in schema:
        return f"array of {_words(schema['items']) if schema['items'] else 'anything'}"
    if schema.get("type") == "object" and "properties" in schema:
        fields = [f"<code>{escape(name)}</code> {_words(each)}" for name, each in schema["properties"].items()]
        return f"object: {', '.join(fields)}"
    limits = [f"{key} {value}" for key, value in schema.items() if key not in ("type", "format", "title")]
    words = " ".join(str(schema[key]) for key in ("type", "format") if key in schema) or "anything"
    return escape(f"{words} ({', '.join(limits)})" if limits else words)
