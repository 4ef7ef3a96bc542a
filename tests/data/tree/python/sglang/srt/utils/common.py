import torch


def get_available_gpu_memory(device, gpu_id):
    free_gpu_memory, _ = torch.cuda.mem_get_info(gpu_id)
    return free_gpu_memory / (1 << 30)


def element_size(dtype):
    return torch.empty((), dtype=dtype).element_size()
