"""The one who makes things go wrong, as the plan says."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from deadletter.testing.virtual_time import Process, VirtualClock
from simulation.faulty import Call, Fault
from simulation.plans import Blow, Plan, Rates, Strike
from simulation.workload import LEASE

# Faults are to hit what matters, not what is called most.
_WEIGHTS: Final = {
    "keep": 5.0,
    "bury": 5.0,
    "settle": 3.0,
    "finish": 3.0,
    "extend": 2.0,
    "sweep": 0.3,
    "forget": 0.1,
}


class Storm:
    """The weather of a plan: faults by its rates until it calms down."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.down: set[tuple[str, str]] = set()  # machine or "", service
        self._rates = plan.rates
        self._random = Random(f"weather {plan.seed}")

    def calm_down(self) -> None:
        """Nothing goes wrong from now on."""
        self._rates = Rates()
        self.down.clear()

    def fault(self, call: Call) -> Fault:
        """What happens to this call."""
        machine = call.process.partition(".")[0]
        if not self.down.isdisjoint({("", call.service), (machine, call.service)}):
            return Fault.OUTAGE
        draw, rates = self._random.random(), self._rates
        draw /= _WEIGHTS.get(call.verb, 1.0)
        for rate, fault in (
            (rates.request_lost, Fault.REQUEST_LOST),
            (rates.reply_lost, Fault.REPLY_LOST),
            (rates.death_before, Fault.DEATH_BEFORE),
            (rates.death_after, Fault.DEATH_AFTER),
        ):
            if draw < rate:
                return fault
            draw -= rate
        return Fault.NONE

    def delay(self) -> float:
        """Milliseconds as a rule, seconds now and then."""
        if self._random.random() < self._rates.slow:
            return self._random.uniform(0.2, 1.5 * LEASE)
        return self._random.uniform(0.0005, 0.005)


class Machine:
    """Where one process after another runs; its clock is its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = VirtualClock()
        self.process: Process | None = None
        self.stop = asyncio.Event()
        self.work: asyncio.Task[object] | None = None
        self.boots = 0

    def boot(self) -> Process:
        """A new process, knowing nothing of the one before."""
        self.boots += 1
        self.process = Process(f"{self.name}.{self.boots}")
        self.stop = asyncio.Event()
        return self.process


class Nemesis:
    """Carries out the strikes of a plan."""

    def __init__(
        self,
        storm: Storm,
        machines: Sequence[Machine],
        store_clock: VirtualClock,
        note: Callable[[str], None],
    ) -> None:
        self._strikes = storm.plan.strikes
        self._storm = storm
        self._machines = machines
        self._store_clock = store_clock
        self._note = note

    async def run(self) -> None:
        """Strike, blow by blow."""
        loop = asyncio.get_running_loop()
        for strike in self._strikes:
            await asyncio.sleep(max(0.0, strike.at - loop.time()))
            self._note(f"nemesis {strike.blow} {strike.process} {strike.service}")
            self._carry_out(strike)

    def relent(self) -> None:
        """Take back what can be taken back."""
        self._storm.calm_down()
        for machine in self._machines:
            if machine.process is not None:
                machine.process.resume()

    def _carry_out(self, strike: Strike) -> None:
        machine = self._machines[strike.process]
        later = asyncio.get_running_loop().call_later
        match strike.blow:
            case Blow.KILL if machine.process is not None:
                machine.process.kill()
            case Blow.PAUSE if machine.process is not None:
                machine.process.pause()
                later(strike.seconds, machine.process.resume)
            case Blow.DEPLOY:
                machine.stop.set()
            case Blow.HURRY:
                machine.stop.set()
                if machine.work is not None:
                    later(strike.seconds, machine.work.cancel)
            case Blow.OUTAGE:
                self._storm.down.add(("", strike.service))
                later(strike.seconds, self._storm.down.discard, ("", strike.service))
            case Blow.PARTITION:
                cut = (machine.name, strike.service)
                self._storm.down.add(cut)
                later(strike.seconds, self._storm.down.discard, cut)
            case Blow.STEP:
                machine.clock.step(strike.seconds)
            case Blow.STORE_STEP:
                self._store_clock.step(strike.seconds)
