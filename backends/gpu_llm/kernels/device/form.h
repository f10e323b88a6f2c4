// Kernels exist in forms, which are compiled from the same or from other files: `native` for Hopper
// (compute capability 9.0), `portable` for every GPU from 8.0. The build sets NEREID_KERNEL_FORM
// for CUDA files, whose definitions are in an inline namespace of that name. All other code sees
// the namespace `dispatched`, whose functions (kernels/forms.cc) call the form of the current
// device.
#pragma once

#ifndef NEREID_KERNEL_FORM
#define NEREID_KERNEL_FORM dispatched
#endif

// Declares the namespace inline: definitions reopen it as nereid::gpu::NEREID_KERNEL_FORM.
namespace nereid::gpu {
inline namespace NEREID_KERNEL_FORM {}
}  // namespace nereid::gpu
