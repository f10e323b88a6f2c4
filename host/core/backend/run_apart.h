// Runs what a stranger wrote on a thread that can be left behind where it hangs. [any thread]
#pragma once

#include <functional>
#include <future>

namespace nereid {

// Here where the system gives no thread. `run` owns what it uses: nobody ends it.
std::future<void> RunApart(std::function<void()> run);

}  // namespace nereid
