"""On a build machine hypothesis repeats the same examples; elsewhere it keeps looking for new."""

import os

from hypothesis import settings

settings.register_profile("build", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("build")
