// The entry points: `backend: "python"`, and backends that are themselves written in Python.
#include "nereid/backend.h"

#include "backends/python_like_scripted/instance.h"
#include "backends/python_like_scripted/model.h"

NEREID_BACKEND(nereid::scripted::PythonModel, nereid::scripted::PythonInstance);
