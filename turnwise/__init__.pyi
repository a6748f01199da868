"""The public names of `import turnwise as tw` for type checkers and editors: those of `PUBLIC` in `__init__.py`.

`from MODULE import NAME as NAME` makes a name public. See docs/python.md.
"""

from flows.python.experiments import load as load
from flows.python.outside_agents import Learned as Learned
from flows.python.outside_agents import learn as learn
from flows.python.outside_agents import record as record
from flows.python.recorded import OpenedPolicy as OpenedPolicy
from flows.python.recorded import RecordedRuns as RecordedRuns
from flows.python.recorded import runs as runs
from flows.python.running import FinishedAblation as FinishedAblation
from flows.python.running import ablation as ablation
from flows.python.running import evaluate as evaluate
from flows.python.running import prepare as prepare
from flows.python.running import run as run
from flows.python.running import sweep as sweep
from flows.python.what_if import what_if as what_if
from flows.sweep import SweepResult as SweepResult
from turnwise.agent.added_rewards import RewardFunction as RewardFunction
from turnwise.checking import CheckReport as CheckReport
from turnwise.checking import check_world as check_world
from turnwise.checking.added_rewards import check_reward as check_reward
from turnwise.checking.credit_rules import check_rule as check_rule
from turnwise.config.sweeps import Range as Range
from turnwise.credit import CreditBatch as CreditBatch
from turnwise.credit import Estimator as Estimator
from turnwise.credit import Restriction as Restriction
from turnwise.credit import estimate as estimate
from turnwise.data.arrays import Ragged as Ragged
from turnwise.data.trajectory import Ending as Ending
from turnwise.data.trajectory import Trajectory as Trajectory
from turnwise.data.trajectory import Turn as Turn
from turnwise.data.trajectory import TurnKind as TurnKind
from turnwise.errors import ConfigurationError as ConfigurationError
from turnwise.errors import RewardMissing as RewardMissing
from turnwise.errors import TrainingEnded as TrainingEnded
from turnwise.errors import TurnwiseError as TurnwiseError
from turnwise.experiment import Experiment as Experiment
from turnwise.records.what_if import WhatIfResult as WhatIfResult
from turnwise.records.what_if import credit_rollouts as credit_rollouts
from turnwise.reporting.ablation_report import AblationReport as AblationReport
from turnwise.reporting.ablation_report import read_report as read_report
from turnwise.reporting.judging import judge as judge
from turnwise.store import Reference as Reference
from turnwise.tracking.finding import RecordedRun as RecordedRun
from turnwise.training_runs.observing import StageCall as StageCall
from turnwise.world import Column as Column
from turnwise.world import Environment as Environment
from turnwise.world import Limits as Limits
from turnwise.world import Observation as Observation
from turnwise.world import Remaining as Remaining
from turnwise.world import Reward as Reward
from turnwise.world import ScriptedAction as ScriptedAction
from turnwise.world import Split as Split
from turnwise.world import Step as Step
from turnwise.world import Task as Task
from turnwise.world import World as World
from turnwise.world import installed_worlds as installed_worlds
from turnwise.world import make_world as make_world

__version__: str
PUBLIC: dict[str, str]
