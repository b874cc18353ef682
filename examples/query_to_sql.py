"""A query of a database in Python: `where(lambda r: …)` becomes SQL, which the database runs.

The condition is quoted code. Its model is translated op by op; what it captures is passed beside the SQL.
"""

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import ziggurat as zg
from ziggurat.codemodel.dialects import core, py, py_objects

OPERATORS = {
    py.Add: "+", py.Sub: "-", py.Mul: "*", py.Div: "/", py.Mod: "%",
    py.Eq: "=", py.Ne: "<>", py.Lt: "<", py.Le: "<=", py.Gt: ">", py.Ge: ">=",
}  # fmt: skip
CALLS = {".lower": "lower", ".upper": "upper", "len": "length", "abs": "abs", "round": "round"}


class Translation:
    """The SQL of a lambda of a row, and the values for its `?`."""

    def __init__(self, code: zg.Quoted[Any, Any]) -> None:
        self.captured = code.captured
        self.values: list[Any] = []
        body = code.model.bodies[0]
        self.row = body.parameters[0]
        self.sql = self.body(body)

    def body(self, body: zg.Body) -> str:
        return self.value(body.entry.terminator.operands[0])

    def value(self, value: zg.Value) -> str:
        op = value.op
        match op:
            case core.ConstantOp():
                return self.parameter(op.value)
            case py.Outer():
                return self.parameter(self.captured[op.name])
            case py.Attribute() if self.is_row(op.value):
                return op.name
            case py.CondAnd() | py.CondOr():
                word = " AND " if isinstance(op, py.CondAnd) else " OR "
                return f"({word.join(map(self.body, op.parts))})"
            case py.Not():
                return f"NOT {self.value(op.operand)}"
            case py.In():
                return f"{self.value(op.lhs)} IN {self.value(op.rhs)}"
            case py.Pack() | py_objects.List():
                return f"({', '.join(map(self.value, op.operands))})"
            case py.CondExpression():
                condition, then = self.value(op.condition), self.body(op.then)
                return f"CASE WHEN {condition} THEN {then} ELSE {self.body(op.otherwise)} END"
            case py_objects.Chain(operators=(first, second)):
                middle = self.value(op.rhs)
                return f"({self.value(op.lhs)} {first} {middle} AND {middle} {second} {self.body(op.others[0])})"
            case py.Invoke() if op.callee in CALLS:
                return f"{CALLS[op.callee]}({', '.join(map(self.value, op.operands))})"
            case py.Invoke(callee=".startswith"):
                text, prefix = map(self.value, op.operands)
                return f"{text} LIKE {prefix} || '%'"
            case py.BinaryExpression() if type(op) in OPERATORS:
                return f"({self.value(op.lhs)} {OPERATORS[type(op)]} {self.value(op.rhs)})"
            case _:
                raise TypeError(f"SQL has no form of this:\n{op.location.excerpt() if op and op.location else value}")

    def is_row(self, value: zg.Value) -> bool:
        return isinstance(value.op, core.VarLoad) and value.op.var.op.initial is self.row

    def parameter(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(map(self.parameter, value))})"
        self.values.append(value)
        return "?"


class Table:
    """A table of a database, with conditions on its rows."""

    def __init__(self, connection: sqlite3.Connection, name: str, *conditions: Translation) -> None:
        self.connection, self.name, self.conditions = connection, name, conditions

    def where(self, condition: Callable[[Any], Any]) -> "Table":
        return Table(self.connection, self.name, *self.conditions, Translation(zg.quote(condition)))

    @property
    def sql(self) -> str:
        conditions = " AND ".join(condition.sql for condition in self.conditions)
        return f"SELECT * FROM {self.name}" + (f" WHERE {conditions}" if conditions else "")

    def __iter__(self) -> Iterator[Any]:
        values = [value for condition in self.conditions for value in condition.values]
        return iter(self.connection.execute(self.sql, values).fetchall())


def main() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE books (title, author, year)")
    rows = [
        ("Emma", "Austen", 1815),
        ("Persuasion", "Austen", 1817),
        ("Ulysses", "Joyce", 1922),
        ("Orlando", "Woolf", 1928),
    ]
    connection.executemany("INSERT INTO books VALUES (?, ?, ?)", rows)
    since, authors = 1800, ("Austen", "Woolf")
    books = Table(connection, "books").where(lambda r: since < r.year <= since + 120 or r.title.startswith("O"))
    query = books.where(lambda r: r.author in authors and not len(r.title) > 8)
    print(query.sql)
    print(list(query))
    assert list(query) == [rows[0], rows[3]]
    try:
        books.where(lambda r: r.title[0] == "E")
    except TypeError as error:
        print(error)


if __name__ == "__main__":
    main()
