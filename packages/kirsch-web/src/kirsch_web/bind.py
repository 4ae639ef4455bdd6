"""Binding: functions, made when the application is mounted, that call a handler with the values of a request.

A parameter's value comes from the first of these that has one: a captured segment of its name; the next segment of the
path, if the parameter can be positional; a field of the body, if the method has a body; the query; the default.

The status of a refusal says which part of the request is wrong: 404 the path, 400 the query, 422 the body.
"""

from __future__ import annotations

import copy

from kirsch_web import bodies
from kirsch_web.convert import checked_json
from kirsch_web.errors import BadText, ConfigError, HTTPError, NotFound
from kirsch_web.fields import media_type
from kirsch_web.publishing import WITH_BODY
from kirsch_web.records import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from kirsch_web.request import Request
    from kirsch_web.shape import Parameter, Shape

    Binder = Callable[[Request], object]

_MISSING: Any = object()
_STATUS = {"path": 404, "query": 400, "header": 400, "cookie": 400, "body": 422}


class Problems:
    """The mistakes found in the values of one request; 50 at most."""

    def __init__(self) -> None:
        self.found: list[dict[str, str]] = []

    def add(self, name: str, source: str, reason: str) -> None:
        if len(self.found) < 50:
            self.found.append({"name": name, "in": source, "reason": reason})

    def error(self) -> HTTPError:
        """Return all mistakes as one HTTPError. Its status is 404 if one is in the path, else 400 if one is in the
        query, a header or a cookie, else 422."""
        statuses = {_STATUS[each["in"]] for each in self.found}
        status = next(each for each in (404, 400, 422) if each in statuses)
        first = self.found[0]
        return HTTPError(status, f"parameter {first['name']} {first['reason']}", errors=self.found)


def shown(value: str) -> str:
    """Return a client's value for an error message: quoted, and at most 60 characters of it."""
    return repr(value if len(value) <= 60 else value[:57] + "...")


def binder(
    shape: Shape,
    call: Callable[..., object],
    *,
    method: str,
    is_index: bool,
    captured: tuple[str, ...] = (),
    refuse_unknown: bool = False,
) -> Binder:
    """Return a function that calls the handler with the arguments of a request.

    Args:
        shape: the handler's signature.
        call: the handler.
        method: the request's method.
        is_index: whether the path has no segments for the parameters, so that they can only be fields.
        captured: the names of captured segments.
        refuse_unknown: whether a field that is no parameter is refused.
    """
    for each in shape.parameters:
        if each.source == "record" and each.record is None and each.required and method not in WITH_BODY:
            raise ConfigError(
                f"{shape.where}: parameter {each.name} is annotated {each.annotation!r}, which needs a body, and "
                f"{method} has none"
            )
    simple = not (captured or refuse_unknown or shape.keywords)
    if simple and not shape.parameters and shape.rest is None:
        return _no_parameters(call)
    if simple and shape.rest is None:
        segments = [each for each in shape.parameters if each.source == "value"]
        injects = [each for each in shape.parameters if each.source == "inject" and not each.positional]
        if (
            segments
            and len(segments) + len(injects) == len(shape.parameters)
            and all(each.positional and each.text is not None and each.many is None for each in segments)
        ):
            general = _General(shape, call, method, is_index, captured, refuse_unknown).__call__
            return _segments(
                call,
                tuple(each.text for each in segments if each.text is not None),
                tuple((each.name, each.inject) for each in injects),
                general,
            )
    if simple and shape.rest is None and all(each.source == "inject" for each in shape.parameters):
        return _injected(call, tuple((each.name, each.inject) for each in shape.parameters))
    return _General(shape, call, method, is_index, captured, refuse_unknown).__call__


def _no_parameters(call: Callable[..., object]) -> Binder:
    def bind(request: Request) -> object:
        if request.rest:
            raise NotFound
        return call()

    bind.nullary = call  # type: ignore[attr-defined]  # for a path that leaves no segments
    return bind


def _segments(
    call: Callable[..., object],
    converters: tuple[Callable[[str], object], ...],
    injects: tuple[tuple[str, Any], ...],
    general: Binder,
) -> Binder:
    """Return a fast binder for requests whose path gives all values. Other requests, and wrong values, which need an
    error message, go to ``general``."""
    count = len(converters)
    convert = converters[0]

    name, inject = injects[0] if injects else ("", None)

    def bind_one(request: Request) -> object:
        rest = request.rest
        if len(rest) != 1 or not rest[0]:
            return general(request)
        try:
            value = convert(rest[0])
        except BadText:
            return general(request)
        return call(value) if inject is None else call(value, **{name: inject(request)})

    def bind(request: Request) -> object:
        rest = request.rest
        if len(rest) != count or "" in rest:
            return general(request)
        try:
            values = [converter(segment) for converter, segment in zip(converters, rest)]  # noqa: B905 - as long
        except BadText:
            return general(request)
        return call(*values, **{name: inject(request) for name, inject in injects})

    return bind_one if count == 1 and len(injects) < 2 else bind


def _injected(call: Callable[..., object], injects: tuple[tuple[str, Any], ...]) -> Binder:
    if len(injects) == 1 and getattr(injects[0][1], "__func__", None) is _request_itself():
        name = injects[0][0]

        def bind_request(request: Request) -> object:
            if request.rest:
                raise NotFound
            return call(**{name: request})

        return bind_request

    def bind(request: Request) -> object:
        if request.rest:
            raise NotFound
        return call(**{name: inject(request) for name, inject in injects})

    return bind


def _request_itself() -> Any:
    from kirsch_web.request import Request

    return Request.__from_request__.__func__  # type: ignore[attr-defined]


class _General:
    """The binder that handles every signature."""

    def __init__(
        self,
        shape: Shape,
        call: Callable[..., object],
        method: str,
        is_index: bool,
        captured: tuple[str, ...],
        refuse_unknown: bool,
    ) -> None:
        self.call = call
        self.shape = shape
        self.is_index = is_index
        self.refuse_unknown = refuse_unknown
        self.captured = frozenset(captured)
        self.from_path = tuple(
            each for each in shape.parameters
            if each.positional and each.source == "value" and each.name not in captured
        )  # fmt: skip
        self.reads_body = method in WITH_BODY and (
            any(each.source in ("record", "upload", "value") for each in shape.parameters) or bool(shape.keywords)
        )
        self.names = frozenset(each.name for each in shape.parameters)

    def __call__(self, request: Request) -> object:
        problems = Problems()
        rest = request.rest
        shape = self.shape
        spare: tuple[object, ...] = ()
        if len(rest) > len(self.from_path):
            if shape.rest is None:
                raise NotFound
            spare = self._spare(rest[len(self.from_path) :], shape.rest, problems)
        fields = _Fields(request, self.reads_body and not self._body_can_wait(len(rest)))
        arguments: list[object] = []
        keywords: dict[str, object] = {}
        given = 0
        gap = False
        for parameter in shape.parameters:
            if parameter.name in self.captured:
                value = self._from_segment(parameter, (request.captured or {})[parameter.name], problems)
            elif parameter.positional and parameter.source == "value" and given < len(rest):
                value = self._from_segment(parameter, rest[given], problems)
                given += 1
            else:
                value = self._find(parameter, request, fields, problems)
            if value is _MISSING:
                gap = True
            elif gap or not parameter.positional:
                keywords[parameter.name] = value
            else:
                arguments.append(value)
        if request.captured and not shape.keywords:
            for name in request.captured:
                if name not in self.names:
                    raise NotFound(f"the path gives {name}, which this resource does not take")
        if shape.keywords or self.refuse_unknown:
            self._others(request, fields, keywords, problems)
        if problems.found:
            raise problems.error()
        return self.call(*arguments, *spare, **keywords)

    def _body_can_wait(self, given: int) -> bool:
        """Return whether the path gives all values, so that the handler itself can read the body."""
        if self.shape.keywords or self.refuse_unknown:
            return False
        path = {each.name for each in self.from_path[:given]} | self.captured
        return all(each.name in path or each.source in ("inject", "header", "cookie") for each in self.shape.parameters)

    @staticmethod
    def _spare(rest: Any, convert: Callable[[str], object], problems: Problems) -> tuple[object, ...]:
        found = []
        for segment in rest:
            try:
                found.append(convert(segment))
            except BadText as error:
                problems.add("path", "path", f"has {shown(segment)}, which is not {error}")
        return tuple(found)

    @staticmethod
    def _from_segment(parameter: Parameter, segment: str, problems: Problems) -> object:
        """Return the converted value of a segment. An empty segment is refused, because ``/books//`` names no book."""
        if parameter.text is None or not segment:
            problems.add(parameter.name, "path", "is empty" if not segment else "cannot be given in the path")
            return _MISSING
        try:
            value = parameter.text(segment)
        except BadText as error:
            problems.add(parameter.name, "path", f"is {shown(segment)}, which is not {error}")
            return _MISSING
        return value

    def _find(self, parameter: Parameter, request: Request, fields: _Fields, problems: Problems) -> object:
        """Return the value from the body, the query, a header, a cookie or a tool; _MISSING if the default applies."""
        source = parameter.source
        if source == "inject":
            assert parameter.inject is not None
            return parameter.inject(request)
        if source == "record":
            found = fields.record(parameter, problems)
            return self._default(parameter) if found is _MISSING else found
        if source == "upload":
            found = self._upload(parameter, fields, problems)
            return self._default(parameter) if found is _MISSING else found
        if source in ("header", "cookie"):
            values = request.headers if source == "header" else request.cookies
            text = values.get(parameter.field)
            if not text:
                return self._absent(parameter, source, problems)
            return self._texts(parameter, [text], source, problems)
        json = fields.json
        if json is not None and parameter.name in json:
            assert parameter.json is not None
            try:
                return parameter.json(json[parameter.name])
            except Invalid as error:
                _invalid(parameter.name, "body", error, problems)
                return _MISSING
        texts = fields.form.get(parameter.name)
        if texts is not None:
            return self._texts(parameter, texts, "body", problems)
        texts = fields.query.get(parameter.name)
        if texts is not None:
            return self._texts(parameter, texts, "query", problems)
        if self.reads_body and fields.has_body:
            return self._absent(parameter, "body", problems)
        return self._absent(parameter, "path" if parameter.positional and not self.is_index else "query", problems)

    @staticmethod
    def _absent(parameter: Parameter, source: str, problems: Problems) -> object:
        if parameter.required:
            problems.add(parameter.name, source, "is missing")
        return _General._default(parameter)

    @staticmethod
    def _default(parameter: Parameter) -> object:
        """Return a copy of a mutable default. For others return _MISSING: the call of the handler supplies them."""
        return copy.deepcopy(parameter.default) if parameter.copies_default else _MISSING

    @staticmethod
    def _texts(parameter: Parameter, texts: list[str], source: str, problems: Problems) -> object:
        """Return the value of the fields of one name: a list if the parameter takes several, else a single value."""
        try:
            if parameter.many is not None:
                builder, item = parameter.many
                return builder([item(text) for text in texts])
            if len(texts) > 1:
                problems.add(parameter.name, source, f"is given {len(texts)} times")
                return _MISSING
            assert parameter.text is not None
            return parameter.text(texts[0])
        except BadText as error:
            wrong = texts[0] if len(texts) == 1 else ", ".join(texts)
            problems.add(parameter.name, source, f"is {shown(wrong)}, which is not {error}")
            return _MISSING

    def _upload(self, parameter: Parameter, fields: _Fields, problems: Problems) -> object:
        uploads = fields.files.get(parameter.name, [])
        # A browser sends a file input that was left empty as a file without name and content.
        chosen = [each for each in uploads if each.filename or each.size]
        if parameter.uploads:
            return chosen if chosen or parameter.required else _MISSING
        if not chosen:
            return self._absent(parameter, "body", problems)
        if len(chosen) > 1:
            problems.add(parameter.name, "body", f"is given {len(chosen)} times")
            return _MISSING
        return chosen[0]

    def _others(self, request: Request, fields: _Fields, keywords: dict[str, object], problems: Problems) -> None:
        """Add the fields that are no parameters to ``keywords``, for ``**params``, or refuse them."""
        sources: list[tuple[str, Mapping[str, Any]]] = [("query", fields.query), ("body", fields.form)]
        sources += [("body", fields.files), ("body", fields.json or {})]
        if self.shape.keywords:
            sources.append(("path", {name: [segment] for name, segment in (request.captured or {}).items()}))
        for source, values in sources:
            for name, value in values.items():
                if name in self.names:
                    continue
                if not self.shape.keywords or name == self.shape.instance:
                    problems.add(name, source, "is not a parameter")
                elif self.shape.keyword is not None and values is not fields.files:
                    found = self._typed(self.shape.keyword, name, value, source, values is fields.json, problems)
                    if found is not _MISSING:
                        keywords[name] = found
                else:
                    single = isinstance(value, list) and len(value) == 1 and values is not fields.json
                    keywords[name] = value[0] if single else value

    def _typed(
        self, keyword: Parameter, name: str, value: Any, source: str, is_json: bool, problems: Problems
    ) -> object:
        """Return the converted value of a field for an annotated ``**params``."""
        parameter = copy.copy(keyword)
        parameter.name = name
        if not is_json and (parameter.text is not None or parameter.many is not None):
            return self._texts(parameter, value, source, problems)
        assert parameter.json is not None
        try:
            return parameter.json(value)
        except Invalid as error:
            _invalid(name, source, error, problems)
            return _MISSING


def _invalid(name: str, source: str, error: Invalid, problems: Problems) -> None:
    for path, reason in error.problems:
        problems.add(f"{name}.{path}" if path and name else path or name, source, reason)


_NO_FIELDS: Any = {}


class _Fields:
    """The fields of one request: those of the query, and those of the body if ``reads_body`` is true."""

    def __init__(self, request: Request, reads_body: bool) -> None:
        self.request = request
        self.query = request.query
        self.form: Mapping[str, list[str]] = _NO_FIELDS
        self.files: Mapping[str, Any] = _NO_FIELDS
        self.json: dict[str, Any] | None = None
        self.whole: Any = _MISSING
        self.has_body = False
        if reads_body and bodies.length_of(request.environ) != 0:
            self.has_body = True
            name, _ = media_type(request.environ.get("CONTENT_TYPE", ""))
            if bodies.is_json(name):
                self.whole = request.json()
                if type(self.whole) is dict:
                    self.json = self.whole
            elif name in ("application/x-www-form-urlencoded", "multipart/form-data"):
                form = request.form
                self.form, self.files = form.fields, form.files
            else:
                raise HTTPError(
                    415,
                    f"the body is {name or 'of no media type'}, which is neither JSON nor a form",
                    headers=[("Accept", "application/json, application/x-www-form-urlencoded, multipart/form-data")],
                )
        elif reads_body:
            self.has_body = request.method != "DELETE"  # which rarely has a body: report missing values elsewhere

    def record(self, parameter: Parameter, problems: Problems) -> object:
        """Return the record made of the whole body, or of the query if there is no body; _MISSING if there is none."""
        try:
            if self.whole is not _MISSING:
                assert parameter.json is not None
                return parameter.json(self.whole)
            record = parameter.record
            if record is not None and self.form:
                return checked_json(record.from_fields, parameter.checks, self.form)
            if record is not None and not self.has_body:
                if not self.query and not parameter.required:
                    return _MISSING
                return checked_json(record.from_fields, parameter.checks, self.query)
        except Invalid as error:
            _invalid("", "body" if self.has_body else "query", error, problems)
            if problems.found and not problems.found[-1]["name"]:
                problems.found[-1]["name"] = parameter.name
            return _MISSING
        if parameter.required:
            problems.add(parameter.name, "body", "is missing: send JSON" + (" or a form" if record else ""))
        return _MISSING
