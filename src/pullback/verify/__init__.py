"""The checker: does a backward keep the promises that autograd and its user rely on?"""
