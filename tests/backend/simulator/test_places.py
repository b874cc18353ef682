"""Places in the source that debug metadata stand for."""

from ziggurat.backend.simulator.text import TextPlaces, unquoted
from ziggurat.codemodel.location import Location

METADATA = {
    1: '!DIFile(filename: "k\\22.py", directory: "/tmp/\\C3\\A9")',
    2: 'distinct !DISubprogram(name: "k", file: !1, line: 3)',
    3: "!DILexicalBlockFile(scope: !2, file: !4, discriminator: 0)",
    4: '!DIFile(filename: "other.py", directory: "/tmp")',
    5: "!DILocation(line: 7, column: 5, scope: !2)",
    6: "distinct !DILocation(line: 9, column: 1, scope: !3, inlinedAt: !5)",
    7: "!DILexicalBlock(scope: !2)",
    8: "!DILocation(line: 8, scope: !7)",
    9: "!DILocation(line: 0, scope: !2)",
}
FILE = '/tmp/é/k".py'


def test_a_place_has_its_file_line_and_column():
    places = TextPlaces(METADATA)
    assert places.of(5) == Location(FILE, 7, 4) and places.of(8) == Location(FILE, 8, 0)
    assert places.of(None) is None and places.of(9) is None and places.of(77) is None


def test_a_place_in_a_helper_has_the_call():
    assert TextPlaces(METADATA).of(6) == Location("/tmp/other.py", 9, 0, caller=Location(FILE, 7, 4))


def test_known_places_have_spans():
    constants = Location(FILE, 7, 4, 7, 9)
    assert TextPlaces(METADATA, [constants]).of(5) == constants


def test_bytes_that_llvm_quotes():
    assert unquoted("a\\0Ab\\22\\5C") == b'a\nb"\\'
