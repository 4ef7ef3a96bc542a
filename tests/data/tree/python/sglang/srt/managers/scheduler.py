import logging

logger = logging.getLogger(__name__)
FORWARD_NOTE = "forward pass counted"


class Scheduler:
    def init_model_worker(self):
        (
            self.max_total_num_tokens,
            self.max_running_requests,
        ) = self.tp_worker.get_worker_info()
        logger.info(
            f"max_total_num_tokens={self.max_total_num_tokens}, "
            f"max_running_requests={self.max_running_requests}, "
            f"context_len={self.model_config.context_len}"
        )

    def report_decode(self):
        parts = [f"#token: {self.num_used}"]
        if self.is_hybrid:
            parts.append(f"state usage: {self.state_usage:.2f}")
        message = f"Decode step, #running: {len(self.running)}, "
        message += ", ".join(parts)
        if self.spec:
            message += f", accept len: {self.accept:.2f}"
        else:
            message += ", no draft"
        message = message + ", #queue: " + str(len(self.queue))
        logger.info(message)
