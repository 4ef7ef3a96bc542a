class TokenPool:
    def __init__(self, size, page_size):
        self.rows = size + page_size
