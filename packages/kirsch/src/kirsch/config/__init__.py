"""The configuration: the settings (``schema``), and the sources of their values (``sources``, ``toml``).

``schema`` declares each setting once. ``kinds`` are the types of its values and ``values`` the parsers of their text.
``arguments`` reads a command line, ``toml`` a settings file; ``sources`` merges both with the environment and the
defaults. ``options`` has the static types of a program's keyword arguments, and is generated. ``native`` is the
configuration object of the native server. ``compat`` has the options of other servers.
"""
