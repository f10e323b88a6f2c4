"""The backend that runs the language models of end-to-end tests which hold for every engine: NEREID_TEST_ENGINE, or the engine on the CPU."""
import os

ENGINE = os.environ.get("NEREID_TEST_ENGINE", "cpu_reference")
