"""The mathematics after `=`: one expression graph, its functions, its derivatives, its text."""
