"""The header fields of common clients, by name: the cost of a request depends on them. A measurement with two short
header fields does not show a server's real use. Each profile is what the named client sends, in its order, with the
values of a plain page load; ``{host}`` is the target's authority. ``Connection`` is missing from all: the generator
writes it, where it says more than the version does.

``ab``
    ApacheBench 2.3, three lines.
``curl``
    curl 8, three lines.
``chrome``
    A browser asking for a page, fourteen lines.
``api``
    A program that calls a JSON interface with a token, seven lines.
``cookies``
    The browser, with the kilobyte of cookies that analytics, consent and a session leave behind.
"""

from __future__ import annotations

Fields = tuple[tuple[str, str], ...]

_CHROME: Fields = (
    ("Host", "{host}"),
    ("Cache-Control", "max-age=0"),
    ("sec-ch-ua", '"Google Chrome";v="131", "Chromium";v="131", "Not_A Brand";v="24"'),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", '"Linux"'),
    ("Upgrade-Insecure-Requests", "1"),
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    ),
    (
        "Accept",
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
            "application/signed-exchange;v=b3;q=0.7"
        ),
    ),
    ("Sec-Fetch-Site", "none"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-User", "?1"),
    ("Sec-Fetch-Dest", "document"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Accept-Language", "en-US,en;q=0.9,de;q=0.8"),
)

_COOKIES = (
    "_ga=GA1.1.1029384756.1700000000; "
    "_ga_4XW7R9QK2P=GS1.1.1700000000.12.1.1700000345.60.0.0; "
    "_gid=GA1.1.564738291.1700000000; "
    "_fbp=fb.0.1700000000000.1234567890; "
    "OptanonAlertBoxClosed=2024-11-14T09:21:37.402Z; "
    "OptanonConsent=isGpcEnabled=0&datestamp=Thu+Nov+14+2024+10%3A21%3A37+GMT%2B0100&version=202403.1.0&brows"
    "erGpcFlag=0&isIABGlobal=false&hosts=&consentId=5c0e3b58-21d5-4be4-9c1a-7d3f8a1e9b42&interactionCount=1&l"
    "andingPath=NotLandingPage&groups=C0001%3A1%2CC0002%3A1%2CC0003%3A1%2CC0004%3A0; "
    "csrftoken=hV0nQx3mR8sYt2LbKc7WzE5pDf1Jg6Au; "
    "sessionid=eyJ1c2VyIjoxMjM0NSwiY2FydCI6WzEsMiwzXSwidGhlbWUiOiJkYXJrIn0.ZzXuAQ.3q2-7wBfJkLmNoPqRsTuVwXyZ01; "
    "locale=en-GB; "
    "theme=dark; "
    "ab_test_bucket=checkout-b%2Csearch-a%2Cbanner-c; "
    "recently_viewed=10023%2C10991%2C20413%2C30555%2C41002%2C50871%2C61230%2C70046; "
    "utm=source%3Dnewsletter%26medium%3Demail%26campaign%3Dautumn-2024"
)

PROFILES: dict[str, Fields] = {
    "ab": (("Host", "{host}"), ("User-Agent", "ApacheBench/2.3"), ("Accept", "*/*")),
    "curl": (("Host", "{host}"), ("User-Agent", "curl/8.9.1"), ("Accept", "*/*")),
    "chrome": _CHROME,
    "api": (
        ("Host", "{host}"),
        ("User-Agent", "python-requests/2.32.3"),
        ("Accept-Encoding", "gzip, deflate"),
        ("Accept", "application/json"),
        (
            "Authorization",
            (
                "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwic2NvcGUiOiJyZWFkIHdyaXRlIiwi"
                "aWF0IjoxNzAwMDAwMDAwLCJleHAiOjE3MDAwMDM2MDB9.c2lnbmVkLWJ5LW5vYm9keS1mb3ItYS1iZW5jaG1hcms"
            ),
        ),
        ("X-Request-Id", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ),
    "cookies": (*_CHROME, ("Cookie", _COOKIES)),
}


def fields(profile: str, host: str, extra: Fields = ()) -> list[tuple[str, str]]:
    """Return the profile's fields for ``host``; fields of ``extra`` replace those of the same name, or are appended. A
    field of ``extra`` with an empty value removes those of its name, like curl's ``-H 'Accept:'``.
    """
    named = {name.lower() for name, _ in extra}
    kept = [(name, value.format(host=host)) for name, value in PROFILES[profile] if name.lower() not in named]
    return [*kept, *((name, value) for name, value in extra if value)]
