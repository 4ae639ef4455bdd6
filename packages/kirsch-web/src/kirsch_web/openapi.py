"""Generation of an OpenAPI 3.1 document from the handlers that an application publishes.

``openapi = web.OpenAPI()`` in the body of the root's class serves the document at ``/openapi``, and an HTML page with
forms for its operations at ``/openapi/page``.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from typing import Any

from kirsch_web import convert, records, texts
from kirsch_web.constraints import constraints
from kirsch_web.errors import NotFound
from kirsch_web.publishing import WITH_BODY
from kirsch_web.request import current
from kirsch_web.response import HTML, Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch_web.interfaces import Application
    from kirsch_web.plan import Plan
    from kirsch_web.shape import Parameter

_SCALARS: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    bytes: {"type": "string"},
    type(None): {"type": "null"},
}
_NAMED = {
    "uuid.UUID": {"type": "string", "format": "uuid"},
    "datetime.date": {"type": "string", "format": "date"},
    "datetime.time": {"type": "string", "format": "time"},
    "datetime.datetime": {"type": "string", "format": "date-time"},
    "decimal.Decimal": {"type": "string", "format": "decimal"},
}
_PROBLEM = {
    "description": "Error",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "in": {"type": "string"}, "reason": {"type": "string"}},
                "required": ["name", "in", "reason"],
            },
        },
    },
    "required": ["type", "title", "status"],
}


_NAME = re.compile(r"\{([^{}]*)\}")
"""Matches a parameter in a path template."""


class OpenAPI:
    """Publishes the OpenAPI document of the application that it is part of, and an HTML page of it, ``page``.

    The page lists the operations and has forms to send requests. It loads nothing from other sites.

    Args:
        title: the title of the API; default: the name of the root's class.
        version: the version of the application.
        has_page: whether the page is published.
    """

    def __init__(self, title: str = "", version: str = "0", *, has_page: bool = True) -> None:
        self.title = title
        self.version = version
        self.has_page = has_page

    def index(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return document(current().app, self.title, self.version)

    def page(self) -> Response:
        """Return the HTML page of the document."""
        from kirsch_web import openapi_page

        request = current()
        files = (request.mount + request.path).rstrip("/").rpartition("/")[0]
        html = openapi_page.page(self.index(), request.mount, files)
        return self._file(html, HTML, [("Content-Security-Policy", openapi_page.POLICY)])

    def style(self) -> Response:
        """Return the style sheet of the page."""
        from kirsch_web import openapi_page

        return self._file(openapi_page.STYLE, "text/css; charset=utf-8")

    def script(self) -> Response:
        """Return the JavaScript of the page."""
        from kirsch_web import openapi_page

        return self._file(openapi_page.SCRIPT, "text/javascript; charset=utf-8")

    def _file(self, content: str, kind: str, headers: Any = ()) -> Response:
        if not self.has_page:
            raise NotFound
        return Response(content, type=kind, headers=[*headers, ("X-Content-Type-Options", "nosniff")])


def document(app: Application, title: str = "", version: str = "0") -> dict[str, Any]:
    """Return the OpenAPI document of an application. Handlers with ``*path`` are left out: OpenAPI has no paths of
    variable length."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    templates: dict[str, str] = {}
    ids: set[str] = set()
    for plan in app.handlers():
        if isinstance(getattr(plan.function, "__self__", None), OpenAPI):
            continue
        for path, names in _paths(plan, hasattr(app.finder, "routes")):
            method = plan.method.lower()
            if method == "query":  # OpenAPI 3.1 has no QUERY operation; 3.2 has
                continue
            # OpenAPI regards paths that differ only in the names of parameters as one path.
            template = templates.setdefault(_NAME.sub("{}", path), path)
            operation = _operation(plan, names, schemas)
            renamed = dict(zip(_NAME.findall(path), _NAME.findall(template), strict=True))
            for each in operation.get("parameters", ()):
                if each["in"] == "path":
                    each["name"] = renamed[each["name"]]
            name, number = operation["operationId"], 2
            while operation["operationId"] in ids:
                operation["operationId"], number = f"{name}_{number}", number + 1
            ids.add(operation["operationId"])
            paths.setdefault(template, {})[method] = operation
    schemas.components["Problem"] = _PROBLEM_SCHEMA
    return {
        "openapi": "3.1.0",
        "info": {"title": title or type(app.root).__name__, "version": version},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": schemas.components},
    }


def _paths(plan: Plan, is_route: bool) -> list[tuple[str, list[str]]]:
    """Return the path templates of a handler, each with its parameters: one for each number of positional segments.

    POST, PUT and PATCH may omit required segments, because the body can give these parameters.
    """
    base = plan.path or "/"
    if is_route:
        from kirsch_web.dispatch import template

        base = template(base)
    if plan.shape is None or plan.shape.rest is not None:
        return []
    positional = [] if plan.is_index else [
        each for each in plan.shape.parameters
        if each.positional and each.source == "value" and each.name not in plan.captured
    ]  # fmt: skip
    least = 0 if plan.method in ("POST", "PUT", "PATCH") else sum(1 for each in positional if each.required)
    found = []
    for count in range(least, len(positional) + 1):
        names = [each.name for each in positional[:count]]
        found.append(
            ("/".join([base.rstrip("/"), *(f"{{{name}}}" for name in names)]) or "/", [*plan.captured, *names])
        )
    return found


def _operation(plan: Plan, in_path: list[str], schemas: _Schemas) -> dict[str, Any]:
    text = inspect.getdoc(plan.function) or ""
    summary, _, description = text.partition("\n")
    operation: dict[str, Any] = {
        "operationId": f"{plan.method.lower()}{(plan.path or '/').replace('/', '_').replace('{', '').replace('}', '')}"
        + (f"_by_{'_'.join(in_path)}" if in_path else ""),
    }
    if summary:
        operation["summary"] = summary
    if description.strip():
        operation["description"] = description.strip()
    parameters: list[dict[str, Any]] = []
    fields: dict[str, Any] = {}
    required: list[str] = []
    has_file = False
    body = plan.method in WITH_BODY
    for each in plan.shape.parameters:
        if each.source == "inject":
            continue
        if each.name in in_path:
            schema = schemas.of(each.annotation)
            parameters.append({"name": each.name, "in": "path", "required": True, "schema": schema})
        elif each.source in ("header", "cookie"):
            parameters.append(_parameter(each, each.source, each.field, schemas))
        elif each.source == "record":
            if body:
                operation["requestBody"] = _record_body(each, schemas)
            elif each.record is not None:  # other types need a body
                properties = schemas.fields(each.record)
                parameters += [
                    {"name": field.name, "in": "query", "required": field.required, "schema": properties[field.name]}
                    for field in each.record.fields
                ]
        elif body:
            has_file = has_file or each.source == "upload"
            fields[each.name] = _field_schema(each, schemas)
            if each.required:
                required.append(each.name)
        else:
            parameters.append(_parameter(each, "query", each.name, schemas))
    known = {each["name"] for each in parameters if each["in"] == "path"}
    parameters += [  # for **params
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in in_path
        if name not in known
    ]
    if fields:
        operation["requestBody"] = _field_body(fields, required, has_file)
    once: dict[tuple[str, str], dict[str, Any]] = {}  # a field of the record may have the name of a parameter
    for parameter in parameters:
        once.setdefault((parameter["name"], parameter["in"]), parameter)
    if once:
        operation["parameters"] = list(once.values())
    operation["responses"] = {
        str(plan.status if plan.shape.returns is not type(None) else 204): _response(plan, schemas),
        "default": _PROBLEM,
    }
    return operation


def _parameter(each: Parameter, place: str, name: str, schemas: _Schemas) -> dict[str, Any]:
    schema = dict(schemas.of(each.annotation))
    if not each.required and isinstance(each.default, (str, int, float, bool)):
        schema["default"] = each.default.value if isinstance(each.default, enum.Enum) else each.default
    return {"name": name, "in": place, "required": each.required, "schema": schema}


def _field_schema(each: Parameter, schemas: _Schemas) -> dict[str, Any]:
    if each.source != "upload":
        return schemas.of(each.annotation)
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    return {"type": "array", "items": file} if each.uploads else file


def _record_body(each: Parameter, schemas: _Schemas) -> dict[str, Any]:
    schema = {"schema": schemas.of(each.annotation)}
    content = {"application/json": schema}
    if each.record is not None:
        content["application/x-www-form-urlencoded"] = schema
    return {"required": each.required, "content": content}


def _field_body(fields: dict[str, Any], required: list[str], has_file: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": fields}
    if required:
        schema["required"] = required
    types = ["multipart/form-data"] if has_file else ["application/json", "application/x-www-form-urlencoded"]
    return {"required": bool(required), "content": {name: {"schema": schema} for name in types}}


def _response(plan: Plan, schemas: _Schemas) -> dict[str, Any]:
    returns = texts.plain(plan.shape.returns)
    if returns is type(None):
        return {"description": "No content"}
    name = getattr(returns, "__name__", "")
    if returns is str:
        return {"description": "OK", "content": {"text/html": {"schema": {"type": "string"}}}}
    if returns is Any or name in ("Response", "Iterator", "Generator", "Iterable", "AsyncIterator", "AsyncGenerator"):
        return {"description": "OK"}
    schemas.mode = "serialization"
    content = {"application/json": {"schema": schemas.of(returns)}}
    schemas.mode = "validation"
    return {"description": "OK", "content": content}


class _Schemas:
    """Generates the JSON Schemas of types. Records become components."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self.mode = "validation"
        """``serialization`` for results of handlers: the schema of a Pydantic model can differ there from its input."""
        self._names: dict[Any, str] = {}
        self._sources: dict[str, Any] = {}
        """The schemas of components as a library generated them, before references were renamed."""

    def of(self, annotation: Any) -> dict[str, Any]:
        """Return the schema of an annotation with its constraints; an empty schema for unknown types."""
        schema = self._of(texts.plain(annotation))
        length = {"array": "Items", "object": "Properties"}.get(schema.get("type", ""), "Length")
        for each in constraints(annotation):
            schema.update({name.replace("Length", length): value for name, value in each.schema.items()})
        return schema

    def _of(self, annotation: Any) -> dict[str, Any]:
        try:
            if annotation in _SCALARS:
                return dict(_SCALARS[annotation])
        except TypeError:
            return {}
        members = texts.union_members(annotation)
        if members is not None:
            return {"anyOf": [self.of(member) for member in members]}
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Literal:
            return {"enum": [each.value if isinstance(each, enum.Enum) else each for each in arguments]}
        target = origin or annotation
        if isinstance(target, type) and target in texts.LISTS:
            return self._array(texts.LISTS[target], arguments)
        if target in texts.DICTS:
            return {"type": "object", "additionalProperties": self.of(arguments[1]) if len(arguments) == 2 else {}}
        if isinstance(annotation, type):
            if issubclass(annotation, enum.Enum):
                return {"enum": [member.value for member in annotation]}
            named = _NAMED.get(f"{annotation.__module__}.{annotation.__qualname__}")
            if named is not None:
                return dict(named)
        record = convert.record(annotation)
        return {} if record is None else {"$ref": f"#/components/schemas/{self._component(annotation, record)}"}

    def _array(self, target: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        items = [each for each in arguments if each is not Ellipsis]
        if target is tuple and len(items) > 1:
            return {"type": "array", "prefixItems": [self.of(each) for each in items], "items": False}
        schema: dict[str, Any] = {"type": "array", "items": self.of(items[0]) if items else {}}
        if target in (set, frozenset):
            schema["uniqueItems"] = True
        return schema

    def fields(self, record: records.Record) -> dict[str, Any]:
        """Return the schema of each field of a record, by the name of the field."""
        foreign = record.schema(self.mode)
        given = {} if foreign is None else self._foreign(foreign).get("properties", {})
        return {field.name: given.get(field.name) or self.of(field.annotation) for field in record.fields}

    def _foreign(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema that a library generated, after making components of its ``$defs``."""
        given = schema.pop("$defs", {})
        renamed: dict[str, str] = {}
        for name, each in given.items():
            new = re.sub(r"[^A-Za-z0-9._-]", "_", name)
            while new in self.components and self._sources.get(new) != each:
                new += "_"
            renamed[f"#/$defs/{name}"] = f"#/components/schemas/{new}"
            self._sources[new], self.components[new] = each, each
        for name, each in given.items():
            new = renamed[f"#/$defs/{name}"].rpartition("/")[2]
            self.components[new] = _with_references(each, renamed)
        found: dict[str, Any] = _with_references(schema, renamed)
        return found

    def _component(self, cls: Any, record: records.Record) -> str:
        foreign = record.schema(self.mode)
        # The schemas of input and output are two components if they differ.
        key = cls if foreign == record.schema("validation") else (cls, self.mode)
        name = self._names.get(key)
        if name is not None:
            return name
        if foreign is not None and "$ref" in foreign:  # a recursive model is among its own $defs
            name = str(self._foreign(foreign)["$ref"]).rpartition("/")[2]
            self._names[key] = name
            return name
        # Page[Book] becomes Page_Book: OpenAPI allows no brackets in names.
        name = "_".join(getattr(each, "__name__", str(each)) for each in (cls, *typing.get_args(cls)))
        name = re.sub(r"[^A-Za-z0-9._-]", "_", name)
        while name in self.components:
            name += "_"
        self._names[key] = name
        self.components[name] = {}  # reserve the name: a record may contain itself
        if foreign is not None:
            self._sources[name] = {each: value for each, value in foreign.items() if each != "$defs"}
            self.components[name] = self._foreign(foreign)
            return name
        schema: dict[str, Any] = {"type": "object", "properties": self.fields(record)}
        required = [field.name for field in record.fields if field.required]
        if required:
            schema["required"] = required
        self.components[name] = schema
        return name


def _with_references(schema: Any, renamed: dict[str, str]) -> Any:
    """Return a copy of ``schema`` with renamed references, including those in discriminator mappings."""
    if isinstance(schema, list):
        return [_with_references(each, renamed) for each in schema]
    if isinstance(schema, dict):
        return {key: _with_references(each, renamed) for key, each in schema.items()}
    return renamed.get(schema, schema) if isinstance(schema, str) else schema
