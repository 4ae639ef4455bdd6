"""Routes: cities that are controllers, found by name, as in the first description of CherryPy's Routes dispatcher.

kirsch cities:app
curl -d pop=1327 http://127.0.0.1:8000/surbiton
"""

import kirsch_web as web


class City:
    def __init__(self, name: str, population: int) -> None:
        self.name = name
        self.population = population

    def index(self) -> str:
        return f"Welcome to {self.name}, pop. {self.population}"

    def update(self, pop: int) -> str:
        self.population = pop
        return "OK"


routes = web.Routes()
for name, population in (("hounslow", 10000), ("surbiton", 9000)):
    city = City(name.title(), population)
    routes.connect(name, f"/{name}", city, action="index", conditions={"method": ["GET"]})
    routes.connect(f"update-{name}", f"/{name}", city, action="update", conditions={"method": ["POST"]})

app = web.App(dispatch=routes)
