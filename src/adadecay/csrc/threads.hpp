// Runs one function on several threads at once, on torch's own threads where it can.
#pragma once

namespace adadecay {

// Calls work(data) on up to `count` threads, the caller's included, and returns when
// all are done. Fewer threads may come than were asked for, so the work must be shared
// out by what the threads take, not by their number.
void run_on_threads(int count, void (*work)(void*), void* data);

}  // namespace adadecay
