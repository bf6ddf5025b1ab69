"""The toy as a config file, for runs by command line."""

from tests.training import toy

get_config = toy.get_config
