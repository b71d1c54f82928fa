"""Learning from responses: what ends teaches, and what was learnt tells what to expect.

Lessons are gathered and sent in batches; habits are read back in the background, for all replicas learn from
all. A request never waits for either.
"""

from extproc.learning.ports import HabitKey, LessonStore, StoredHabits
from extproc.learning.service import Learning, LearningObserver

__all__ = ["HabitKey", "Learning", "LearningObserver", "LessonStore", "StoredHabits"]
