/* poison.h - memory that must not be touched, for builds with AddressSanitizer; nothing in others. */
#ifndef TRAINER_BASE_POISON_H
#define TRAINER_BASE_POISON_H

#if defined(__SANITIZE_ADDRESS__)
    #include <sanitizer/asan_interface.h>
#else
    #define ASAN_POISON_MEMORY_REGION(address, size)   ((void)(address), (void)(size))
    #define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#endif
