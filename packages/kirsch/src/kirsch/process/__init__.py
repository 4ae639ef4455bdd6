"""The process that serves: its signal handlers, the children that the application forks, and the stacks of threads."""
