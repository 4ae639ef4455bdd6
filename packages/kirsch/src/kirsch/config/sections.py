"""The sections of the settings."""

# In the order of help and the reference page.
SECTIONS = {
    "Application": "Where the application and its settings are found.",
    "Sockets": "Where the application is served.",
    "TLS": "With which certificates connections are encrypted.",
    "ACME": "Certificates that the server obtains by itself, from an authority such as Let's Encrypt.",
    "Proxies": "Which proxies in front of the server are believed when they name the client of a request. Without them "
    "the client is the peer of the socket, and what requests say of it is not read.",
    "Workers": "How many processes serve, and how new processes take over from old ones.",
    "Limits of a worker": "When a worker is replaced, and how long each step may take. The new worker is ready before "
    "the old one ends.",
    "Process": "What the operating system knows of the processes.",
    "Outside view": "What can be observed without a request to the application.",
    "Requests": "How the application is called: by which driver, how many calls at a time, and how long a request may "
    "take.",
    "Time": "How long a client may take. Durations are written 90, 90s, 5m, 1h30m, 30d or 500ms; a bare number is "
    "seconds.",
    "Size": "How much a client may send. Sizes are written 65536, 64k, 1MiB or 1g; k, m and g are powers of 1024.",
    "Response": "What is added to responses.",
    "WebSocket": "How much a client of a WebSocket may send, and how it is seen to be there.",
    "Static files": "Files that the server answers with by itself, without the application.",
    "Logs": "What is logged, and where.",
    "Instead of serving": "Check the configuration and exit.",
}
