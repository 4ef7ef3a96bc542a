class TpModelWorker:
    def get_worker_info(self):
        return (
            self.model_runner.max_total_num_tokens,
            self.max_running_requests,
        )
