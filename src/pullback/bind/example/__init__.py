"""One call of a function -> its line: tied and free dimensions, and the outputs' sizes.

`line` puts the line together; `against` compares a given line with an example.
"""
