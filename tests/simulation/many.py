"""
Many worlds, from the command line:  python tests/simulation/many.py 0 5000

Says what was found, made as small as it gets, and which faults never happened.
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulation.faulty import Fault
from simulation.happening import happen
from simulation.plans import plan_of
from simulation.simulate import shrink

VERBS = ("broker.receive", "broker.settle", "broker.extend", "broker.sweep")
VERBS += (
    "office.keep",
    "office.bury",
    "office.get",
    "office.move",
    "ledger.begin",
    "ledger.finish",
)
VERBS += ("office.settle_replays", "office.take_replay", "office.sent_replay")
VERBS += ("office.send_back", "broker.send", "ledger.look")


def main(start: int, end: int) -> int:
    boots, seconds, failed, hits = 0, 0.0, 0, Counter[str]()
    for seed in range(start, end):
        verdict = happen(plan_of(seed))
        boots += verdict.boots
        seconds += verdict.seconds
        hits += verdict.hits
        if verdict.violations:
            failed += 1
            small = shrink(verdict.plan, happen, verdict.violations[0].name)
            print(f"seed {seed}\n{happen(small).story()}\n", flush=True)
    faults = [fault for fault in Fault if fault is not Fault.NONE]
    missed = [f"{f} {v}" for f in faults for v in VERBS if not hits[f"{f} {v}"]]
    print(f"{end - start} worlds, {failed} of them broken")
    print(f"{boots:,} processes, {hits.total():,} faults, {seconds / 3600:.1f} hours")
    print(f"never happened: {', '.join(missed) or 'nothing'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
