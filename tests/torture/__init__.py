"""Proof by attack: kills, damaged images, hostile input and bad disks, short or long.

`make torture` runs all of it long and prints what was survived; `test_torture_*.py` beside it run a
short form of each.  Every driver raises `counts.BrokenError` where a promise of
`docs/reliability.md` does not hold.
"""
