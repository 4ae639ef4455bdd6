"""Parts of a serving process: threads of the operating system under gevent, signal handlers, children that the
application forks, and stacks of threads."""
