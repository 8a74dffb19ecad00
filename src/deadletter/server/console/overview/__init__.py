"""The overview: does anything need me?"""
