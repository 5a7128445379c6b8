"""The interpreter lane: Triton's own interpreter under an overlay that computes as compiled code does.

`lane` runs a case in a session (`state`), during which the patches of `overlay` hold. What they change:

numerics     what each operation computes: conversions, arithmetic, products, reductions
booleans     `and`, `or`, `not` and conditions on tensors
supplements  what the stock interpreter lacks: autotuning, typed loops, libdevice
passages     which lines of a kernel's source were executed
access       reads and writes, which go through the `sanitizer`: bounds, races, reads of unwritten memory
launches     one launch: arguments, the grid in a program `order`, programs that wait for another (`waiting`)
speed        what is remembered from one operation to the next

`frames` keeps Python itself from slowing a launch down.
"""
