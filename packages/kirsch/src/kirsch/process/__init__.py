"""The process that serves: its real threads under gevent, its signal handlers, the children that the application forks,
and the stacks of its threads."""
