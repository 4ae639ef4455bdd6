"""A JSON interface that describes itself: dataclasses in and out, one method for each HTTP method, OpenAPI.

kirsch tasks:app
curl -d '{"title": "Write"}' -H 'Content-Type: application/json' http://127.0.0.1:8000/tasks
"""

import dataclasses
import itertools
import threading

import kirsch_web as web


@dataclasses.dataclass
class NewTask:
    title: str
    done: bool = False


@dataclasses.dataclass
class Task:
    id: int
    title: str
    done: bool


class Tasks:
    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def index(self, done: bool | None = None) -> list[Task]:
        """GET /tasks?done=false"""
        return [each for each in self._tasks.values() if done is None or each.done is done]

    @web.post(name="index", status=201)
    def create(self, new: NewTask) -> Task:
        """POST /tasks"""
        with self._lock:
            task = Task(next(self._numbers), new.title, new.done)
            self._tasks[task.id] = task
        return task

    def show(self, id: int) -> Task:
        """GET /tasks/show/1"""
        return self._task(id)

    @web.put(name="show")
    def replace(self, id: int, new: NewTask) -> Task:
        """PUT /tasks/show/1"""
        self._task(id)
        task = self._tasks[id] = Task(id, new.title, new.done)
        return task

    @web.delete(name="show")
    def remove(self, id: int) -> None:
        """DELETE /tasks/show/1: 204"""
        self._task(id)
        del self._tasks[id]

    def _task(self, id: int) -> Task:
        if id not in self._tasks:
            raise web.NotFound(f"there is no task {id}")
        return self._tasks[id]


class Root:
    def __init__(self) -> None:
        self.tasks = Tasks()
        self.openapi = web.OpenAPI(title="Tasks")


app = web.App(Root())
