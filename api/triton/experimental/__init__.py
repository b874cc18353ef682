"""`triton.experimental`: the place of Gluon, of which libraries import the names."""
