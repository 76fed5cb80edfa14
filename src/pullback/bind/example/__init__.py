"""One call of a function -> its line: what is tied, what is free, how the outputs' sizes follow.

`line` puts the line together; `against` holds a line that is given against an example.
"""
