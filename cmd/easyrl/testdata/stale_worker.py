"""A worker that leaves a tied head at its first weights."""

import easyrl_worker

easyrl_worker._process_tied = lambda model: None


class Stale(easyrl_worker.EasyRL):
    pass
