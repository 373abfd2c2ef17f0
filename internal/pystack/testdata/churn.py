# Functions that call each other at random, for ever. fN is called by fN-1, f0 by main, so
# that a test sees whether a stack can be.
import random

source = ["import random"]
DEPTH = 40
for n in range(DEPTH):
    source.append("def f%d():\n x = 1\n while random.random() < 0.6:\n  x += 1\n  f%d()\n return x" % (n, n + 1))
source.append("def f%d():\n return 1" % DEPTH)
source.append("def main():\n print('ready', flush=True)\n while True:\n  f0()")
namespace = {}
exec(compile("\n".join(source), "churn.py", "exec"), namespace)
namespace["main"]()
