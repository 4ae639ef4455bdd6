"""The configuration: the settings (``schema``), and the sources of their values (``sources``, ``toml``).

``schema`` declares each setting once. ``kinds`` are the types of its values and ``values`` the parsers of their text.
``arguments`` reads a command line, ``toml`` a settings file; ``sources`` merges both with the environment and the
defaults. ``options`` holds the static types of what a program may pass, and is generated. ``native`` is what the native
server is given. ``compat`` knows the options of other servers.
"""
