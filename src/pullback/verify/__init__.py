"""The checker: does a backward do what autograd, and its user, take for granted?"""
